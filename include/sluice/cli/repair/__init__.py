"""Commands that put right: quarantine, restore, checkpoint."""
