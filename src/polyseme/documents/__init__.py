"""What people bring, checked: tag sets, vocabulary, word vectors."""
