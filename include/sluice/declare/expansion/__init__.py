"""What declarations stand for: the tables and rules that are there because others were declared."""
