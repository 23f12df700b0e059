"""One thread a process: on tensors of this size a second thread only waits."""

import torch

torch.set_num_threads(1)
