"""The kinds of methods; `polyseme_experiments.methods` lists the methods themselves."""
