"""Reports: tables and figures from what the runs left, without any model."""
