"""The page of estimates: from the numbers of a summary and a table to sections and charts."""
