"""Tests; a package, so that Gymnasium can import `tests.fake_envs:Counter-v0` by name."""
