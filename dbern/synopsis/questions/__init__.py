"""What one release of bins can answer: shares, quantiles, means, each with a band."""
