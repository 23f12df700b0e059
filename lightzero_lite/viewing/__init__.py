"""What a person looks at: recordings of episodes, and pictures of searches and runs."""
