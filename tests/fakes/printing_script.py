"""A script that knows nothing of batchscale: it takes its values as arguments, and prints or writes measurements."""

import csv
import sys
import time
from pathlib import Path


def main() -> None:
    rate, batch_size, steps, every, table = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), 10, sys.argv[4:]
    rows = []
    for step in range(1, steps + 1):
        time.sleep(0.0005)
        if step % every == 0:
            error = 1 / (1 + rate * step * batch_size**0.5)
            sys.stdout.write(
                f"[{time.strftime('%X')}] epoch {step // 50}, step {step}: loss={2 * error:.4f} error={error}\n"
            )
            rows.append((step, error))
            if table:
                with Path(table[0]).open("w", newline="") as file:
                    csv.writer(file).writerows([("global_step", "eval_error"), *rows])


if __name__ == "__main__":
    main()
