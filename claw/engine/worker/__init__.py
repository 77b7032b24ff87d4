"""Rollout workers: token ids in; ids, log-probs and top-k out."""
