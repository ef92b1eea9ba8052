"""States of trials made by hand."""

import numpy as np

from batchscale.training.state import TrialState


def state_at(step, size=1000):
    scalar = np.float32(0)
    return TrialState(
        params={"w": np.full(size, step, np.float32)},
        model_state={},
        opt_state=(),
        metaparameters={"learning_rate": np.float32(0.1)},
        order_key=np.array([1, 2], np.uint32),
        noise_key=np.array([3, 4], np.uint32),
        epoch=np.int32(0),
        offset=np.int32(0),
        step=np.int32(step),
        loss_limit=scalar,
        last_loss=scalar,
        diverged_at=np.int32(-1),
    )
