-- An answer for one of many: what went wrong as text.

local function as_text(ok, answer)
  if type(answer) == 'table' and answer.err then
    return answer.err
  end
  -- Before version 7 it is the text of a script that failed.
  return ok and answer or 'ERR Error running script: ' .. answer
end
