"""What ferry.reference is made of; nothing here needs the native module."""
