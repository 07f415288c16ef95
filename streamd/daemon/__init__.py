"""The parent process: configuration, supervision of the workers, systemd. Imports neither torch nor av."""
