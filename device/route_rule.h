/* How a router makes weights of its logits; device/op_experts.h explains the rules. */
#ifndef FERRY_DEVICE_ROUTE_RULE_H
#define FERRY_DEVICE_ROUTE_RULE_H

enum route_rule { ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_CHOSEN, ROUTE_RULE_COUNT };

#endif
