"""What rules yield: signals, the measured values behind them, their words, and which of them go on firing."""
