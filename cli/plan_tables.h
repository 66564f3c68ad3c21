/* The output of `ferry plan` about a model and a plan's memory by part: tables, and JSON for programs. */
#ifndef FERRY_CLI_PLAN_TABLES_H
#define FERRY_CLI_PLAN_TABLES_H

#include "base/json.h"
#include "train/session.h"

/* Prints the parameters of the embedding, attention, MLP, norms and head, and the trained ones unless all
 * train. */
void plan_tables_parameters(const struct session *s);

/* Says that frozen weights count as fp32 where the model names no dtype. */
void plan_tables_warn(const struct session *s);

/* Prints memory by part: of the device during the operation with the peak, and of the host. On the host
 * everything except rings lives all the time. ERR_NOMEM. */
int plan_tables_memory(const struct session *s);

/* Prints the bytes over the host's memory bus in a step: in all, for each parameter of this rank's share and
 * purpose, and their minimum time at the assumed rate. */
void plan_tables_bus(const struct session *s);

/* With several ranks, prints the bytes that each sends in a step, within its node and over the network. */
void plan_tables_traffic(const struct session *s);

/* Adds "traffic": {"h2d_bytes", "d2h_bytes", "gather_node_bytes", "gather_network_bytes", "sum_node_bytes",
 * "sum_network_bytes", "node_bytes", "network_bytes"}, "parameters_by_part" "memory": {"device": {...},
 * "host": {...}}, and "bus": {"bytes", "weight_bytes", "gradient_bytes", "update_bytes", "other_bytes",
 * "bytes_per_parameter", "ms"}. ERR_NOMEM. */
int plan_tables_json(json_t *object, const struct session *s);

#endif
