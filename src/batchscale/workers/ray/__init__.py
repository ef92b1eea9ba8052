"""Workers on a Ray cluster: long-lived actors, each with one worker process. Nothing else imports Ray."""
