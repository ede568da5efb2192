// Filled by its tab.
