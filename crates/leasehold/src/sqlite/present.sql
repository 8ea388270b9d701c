-- Whether anybody listens, waits, or holds a key together with others: one look for all three.
SELECT EXISTS (SELECT 1 FROM listeners), EXISTS (SELECT 1 FROM line), EXISTS (SELECT 1 FROM grants)
