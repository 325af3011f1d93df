package meaning
