"""`python -m streamd.worker FD`: a worker process on its end of the daemon's socket pair. Started by the daemon, never by people."""

import sys

from streamd.worker.main import main

if __name__ == "__main__":
    main(int(sys.argv[1]))
