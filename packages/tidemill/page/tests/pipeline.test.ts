import assert from "node:assert/strict";
import { test } from "node:test";
import { definitionOf, resourceOf, statusOf, type StepState } from "../src/pipeline";

const text = JSON.stringify({
  Version: "2020-12-01",
  Parameters: [
    { Name: "epochs", Type: "Integer", DefaultValue: 3 },
    { Name: "data", Type: "String" },
    { Name: "kind", Type: "String", DefaultValue: "a", EnumValues: ["a", "b"] },
  ],
  Steps: [
    { Name: "prepare", Type: "Processing", Arguments: { Inputs: [{ Get: "Parameters.data" }] } },
    { Name: "train", Type: "Training", DisplayName: "Train it", Arguments: { Data: { Get: "Steps.prepare.Outputs['x'].Uri" } } },
    {
      Name: "good",
      Type: "Condition",
      DependsOn: ["prepare"],
      Arguments: {
        Conditions: [{ LeftValue: { "Std:JsonGet": { PropertyFile: { Get: "Steps.train.PropertyFiles.e" } } } }],
        IfSteps: [{ Name: "register", Type: "RegisterModel", Arguments: { Model: { Get: "Steps.train.ModelArtifacts" } } }],
        ElseSteps: [{ Name: "fail", Type: "Fail", Arguments: { ErrorMessage: "bad" } }],
      },
    },
  ],
});

test("needs are those that are given, those that arguments read, and the condition of a branch", () => {
  const { steps } = definitionOf(text);
  const needs = Object.fromEntries(steps.map((step) => [step.name, [...step.needs].sort()]));
  assert.deepEqual(needs, { prepare: [], train: ["prepare"], good: ["prepare", "train"], register: ["good", "train"], fail: ["good"] });
  assert.equal(steps[1]!.title, "Train it");
  assert.deepEqual(steps[4]!.branch, { condition: "good", outcome: "False" });
});

test("parameters have their initial values as text", () => {
  assert.deepEqual(definitionOf(text).parameters.map(({ name, initial }) => [name, initial]), [["epochs", "3"], ["data", ""], ["kind", "a"]]);
  assert.deepEqual(definitionOf(text).parameters[2]!.choices, ["a", "b"]);
});

test("a step that was not begun waits, unless the other branch or the end says otherwise", () => {
  const [prepare, train, , register, fail] = definitionOf(text).steps;
  const state = (StepName: string, more: Partial<StepState>): [string, StepState] =>
    [StepName, { StepName, StepStatus: "Succeeded", StartTime: 1, ...more }];
  const states = new Map([state("prepare", {}), state("good", { Metadata: { Condition: { Outcome: "True" } } })]);
  assert.equal(statusOf(prepare!, states, false), "Succeeded");
  assert.equal(statusOf(train!, states, false), "Waiting");
  assert.equal(statusOf(register!, states, false), "Waiting");
  assert.equal(statusOf(fail!, states, false), "NotExecuted");
  assert.equal(statusOf(train!, states, true), "NotExecuted");
  assert.equal(resourceOf(states.get("good")), undefined);
});
