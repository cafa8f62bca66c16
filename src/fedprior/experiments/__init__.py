"""The paper's tables and figures, and ours beside them: one file each, a function of its seed."""
