"""What erasure needs from declarations: links between identifiers, and no personal data where no erasure reaches."""
