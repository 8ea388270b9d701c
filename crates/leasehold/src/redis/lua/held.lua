-- The set of held locks has their names, so that a listing need not look for them among all names. It is a hint: whoever
-- may not write to it may still lock, other libraries do not know of it, and a lock that expires stays in it. list.lua
-- finds out whether it is complete.

-- What the names of lock ids start with leads to it.
local function held(indexes)
  return indexes .. '{{held}}'
end

-- The same for the name of one lock id.
local function held_beside(index, id)
  return held(string.sub(index, 1, -1 - #id))
end
