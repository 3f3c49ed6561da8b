"""The order of dispatches and the plan of their memory."""
