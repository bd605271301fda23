"""The audited core: budgets, sensitivities, keyed entropy, exact noise."""
