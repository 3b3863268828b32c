-- Nothing: the number is kept for a change that is made beside this one.
SELECT 1;
