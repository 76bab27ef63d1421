"""The service under a steady load for a long time: nothing may grow. `make soak`."""
