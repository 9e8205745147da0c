// What a control message may carry; the same for what is sent and for what is received.
#pragma once

#include "transport/control.h"

namespace troupe {

// Errors: kInvalidArgument, naming the field, what was seen and what is allowed.
Result<void> check_control(const ControlBody& body);

}  // namespace troupe
