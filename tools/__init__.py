"""What the nox sessions and the contract tests share: discovery, environments, parallel runs, the scoreboard."""
