"""The tuning loop: candidates are proposed, built, measured and recorded, until the budget is spent."""
