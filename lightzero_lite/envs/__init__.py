"""Environments: construction, checks, stepping, and the games that come along."""

from lightzero_lite.envs import games as games
