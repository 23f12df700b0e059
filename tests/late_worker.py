"""What one rank does in `test_failure.py`: rank 1 comes late. Started by torchrun."""

from __future__ import annotations

import sys
import time
from datetime import timedelta

from lightzero_lite.runtime.distributed import joined_ranks


def main(way: str) -> None:
    """Gather after 3 s of rank 1 in a group that waits for 1 s."""
    with joined_ranks(timedelta(seconds=1)) as ranks:
        ranks.barrier()
        for _ in range(30 if ranks.rank else 0):
            time.sleep(0.1)
            ranks.pulse()
        if way == "late":
            values = ranks.gather_late(ranks.rank, is_leaving=lambda: False)
        else:
            values = ranks.gather(ranks.rank)
        print(f"gathered {values}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
