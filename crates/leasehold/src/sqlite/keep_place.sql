-- A place that its owner keeps by asking again, or whose owner is called.
UPDATE line SET until_ms = ?2, holder = ?3, metadata = ?4, mode = ?5, permits = ?6, called = ?7
WHERE lock_id = ?1
