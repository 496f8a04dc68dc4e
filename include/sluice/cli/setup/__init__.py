"""Commands about this machine and this checkout: doctor, up, down, secrets, a new pipeline."""
