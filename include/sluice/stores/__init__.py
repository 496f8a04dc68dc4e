"""Object stores: how a URL is read, how its store is opened, and what is tried before Sluice trusts it with commits."""
