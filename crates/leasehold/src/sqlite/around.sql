-- Whether anybody stands in line for the key ?1; whether the id ?2 has the lock of another key, or waits for it at the
-- time ?3; and whether it holds this key together with others.
SELECT EXISTS (SELECT 1 FROM line WHERE key = ?1),
       EXISTS (SELECT 1 FROM line WHERE lock_id = ?2 AND key <> ?1 AND until_ms > ?3)
       OR EXISTS (SELECT 1 FROM grants WHERE lock_id = ?2 AND key <> ?1)
       OR EXISTS (SELECT 1 FROM locks WHERE lock_id = ?2 AND key <> ?1),
       EXISTS (SELECT 1 FROM grants WHERE lock_id = ?2 AND key = ?1)
