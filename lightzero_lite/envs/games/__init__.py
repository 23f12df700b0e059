"""Games of two players, registered with Gymnasium as TicTacToe-v0 and ConnectFour-v0."""

import gymnasium

gymnasium.register(
    "TicTacToe-v0", "lightzero_lite.envs.games.tic_tac_toe:TicTacToe", max_episode_steps=9
)
gymnasium.register(
    "ConnectFour-v0", "lightzero_lite.envs.games.connect_four:ConnectFour", max_episode_steps=42
)
