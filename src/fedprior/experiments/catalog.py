"""Every experiment: what it measures, where the paper has it, what data it needs."""

EXPERIMENTS = (
    {
        "name": "bernoulli",
        "measures": "rates of 10,000 clients, 14 samples each, from four populations",
        "paper": "section 5, synthetic Bernoulli",
        "needs": "nothing: works offline",
    },
    {
        "name": "elections",
        "measures": "county elections 2000-2020, one left out at a time",
        "paper": "section 5, political tendencies",
        "needs": "the county results under elections/",
    },
    {
        "name": "gaussian-dp",
        "measures": "error of locally private means against epsilon",
        "paper": "appendix, DP personalized estimation (figure)",
        "needs": "nothing: works offline",
    },
    {
        "name": "private-rates",
        "measures": "gains that private rates promise and keep, for populations of every shape",
        "paper": "none: ours",
        "needs": "nothing: works offline",
    },
    {
        "name": "batting",
        "measures": "later batting averages predicted from a player's first season",
        "paper": "none: ours",
        "needs": "the Lahman seasons under empirical_bayes/",
    },
    {
        "name": "dp-figures",
        "measures": "accuracy of private methods and of local against epsilon; psi's path",
        "paper": "section 5, DP-AdaPeD (figures)",
        "needs": "MNIST and its writers; nothing with --quick or --setting synthetic",
    },
    {
        "name": "optimizer",
        "measures": "validation scores of methods under 12 optimizers: the one of --equal",
        "paper": "none: ours",
        "needs": "MNIST and its writers",
    },
    {
        "name": "table1",
        "measures": "accuracy of 23 methods, tuned alike, on MNIST and on MNIST by writer",
        "paper": "section 5, Table 1",
        "needs": "MNIST and its writers",
    },
    {
        "name": "beyond",
        "measures": "our own method against all others in three settings that Table 1 lacks",
        "paper": "none: ours",
        "needs": "MNIST and its writers",
    },
    {
        "name": "cifar10",
        "measures": "accuracy of all methods with a CNN on CIFAR-10, three ways to share it out",
        "paper": "none: ours",
        "needs": "the CIFAR-10 binary files under cifar10/",
    },
    {
        "name": "ablation",
        "measures": "our own method with one ingredient left out",
        "paper": "none: ours",
        "needs": "MNIST and its writers",
    },
    {
        "name": "framework",
        "measures": "our own method on clients drawn from the framework, beside the exact model",
        "paper": "none: ours",
        "needs": "nothing: works offline",
    },
    {
        "name": "few-samples",
        "measures": "accuracy, log loss and calibration with 10 to 1,200 samples a client",
        "paper": "none: ours",
        "needs": "MNIST and its writers",
    },
    {
        "name": "fedem",
        "measures": "AdaPeD and FedEM with every client in every round",
        "paper": "appendix, comparison with FedEM",
        "needs": "MNIST",
    },
    {
        "name": "linear",
        "measures": "regressions of 10,000 clients with more features than rows",
        "paper": "section 5, linear regression",
        "needs": "nothing: works offline",
    },
    {
        "name": "logistic",
        "measures": "held-out log-loss of regressions of 10,000 groups, 5 to 40 rows each",
        "paper": "section 3, logistic regression (no figures printed)",
        "needs": "nothing: works offline",
    },
)
