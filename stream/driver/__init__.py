"""What drives the fold: the trainer over a log, the backtest over a file, recovery."""
