"""The machine: its cores, threads, signals, hardware and installed versions."""
