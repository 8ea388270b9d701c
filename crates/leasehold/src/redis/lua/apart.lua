-- Where many ask at once, what is not decided at a glance is asked for by itself.

local function busy()
  return {{apart}}
end
