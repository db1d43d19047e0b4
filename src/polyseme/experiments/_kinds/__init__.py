"""The kinds of methods; `polyseme.experiments.methods` lists the methods themselves."""
