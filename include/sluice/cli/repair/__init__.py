"""Commands that repair tables and flows: quarantine, restore, repair, checkpoint."""
