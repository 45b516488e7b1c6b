"""Load, prompt, decode and score a model. The only room that imports transformers and peft."""
