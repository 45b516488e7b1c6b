"""A language model that calls single turns GOOD or BAD, and a scripted server to test it with.

`LlmJudge` of `rltune.judge.client` asks any OpenAI-compatible endpoint; nothing here imports torch.
"""
