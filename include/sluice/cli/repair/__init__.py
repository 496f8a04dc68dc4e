"""Commands that mend tables: quarantine, restore, repair, checkpoint."""
