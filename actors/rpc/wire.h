// Between the values of requests.h and status.h and their form in schemas/client.capnp, both ways.
// What comes off the wire is data from a stranger: unknown enumerants become the harmless
// neighbour, lists are bounded.
#pragma once

#include "actors/rpc/requests.h"
#include "actors/rpc/status.h"
#include "schemas/client.capnp.h"

namespace troupe::rpc {

namespace schema = ::troupe::schema::client;

void write(const Error& error, schema::Failure::Builder to);
Error read(schema::Failure::Reader from);
// For results whose null failure means success.
Result<void> read_outcome(bool failed, schema::Failure::Reader failure);

// Refuses what validate() would refuse for its size, before copying it; the rest is validate()'s.
Result<GenerateCall> read(schema::GenerateRequest::Reader from);
void write(const GenerateCall& call, schema::GenerateRequest::Builder to);

GeneratedPiece read(schema::Piece::Reader from);
void write(const GeneratedPiece& piece, schema::Piece::Builder to);

GenerateEnd read(schema::GenerateEnd::Reader from);
void write(const GenerateEnd& end, const RequestId& id, schema::GenerateEnd::Builder to);

Result<FaultCall> read(schema::Fault::Reader from);
void write(const FaultCall& call, schema::Fault::Builder to);

// Refused as validate() does, so that a session can pass them on as they are.
Result<DrainCall> read(schema::Session::DrainNodeParams::Reader from);
void write(const DrainCall& call, schema::Session::DrainNodeParams::Builder to);

Result<MoveCall> read(schema::Session::MoveStageParams::Reader from);
void write(const MoveCall& call, schema::Session::MoveStageParams::Builder to);
Result<StandbyCall> read(schema::Session::SetStandbyParams::Reader from);
void write(const StandbyCall& call, schema::Session::SetStandbyParams::Builder to);

ClusterStatus read(schema::ClusterStatus::Reader from);
void write(const ClusterStatus& status, schema::ClusterStatus::Builder to);

// KJ throws; everything else here returns. The text of an exception without file and line.
Error error_from(const kj::Exception& exception);

}  // namespace troupe::rpc
