"""Client data: federations, datasets, partitions, tables."""
