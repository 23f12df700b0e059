"""Train MuZero.

python train.py env=cartpole                                        one process
torchrun --standalone --nproc_per_node=2 train.py env=cartpole      two ranks on this machine
"""

from lightzero_lite.train import main

if __name__ == "__main__":
    main()
